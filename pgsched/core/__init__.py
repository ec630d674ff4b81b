"""Pure functions and values: schedules, policies, states and explanations. Nothing here does I/O."""
