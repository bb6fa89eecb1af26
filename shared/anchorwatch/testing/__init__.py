"""For tests, also of users' own packs: a whole mesh in one process, in virtual time, with processes that can be killed."""
