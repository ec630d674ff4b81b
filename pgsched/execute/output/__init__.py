"""What attempts print and log: recorded, bounded, relayed."""
