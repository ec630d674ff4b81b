"""Programs that coordinate: one for each contestant of `recipes`."""
