"""The building blocks of circuits: programs that are hardware of their own, with static schedules and no matching."""
