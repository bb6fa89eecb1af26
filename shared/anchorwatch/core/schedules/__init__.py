"""Cron schedules of sessions, pure: `cron` names slots, `zones` maps them to instants, `machine` decides what is to be done."""
