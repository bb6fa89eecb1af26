"""Cron schedules, pure: `cron` finds slots, `zones` maps them to instants, `machine` decides what happens to each."""
