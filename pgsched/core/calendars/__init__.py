"""Times of shared calendars: as people type them, and as iCalendar files have them."""
