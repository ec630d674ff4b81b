"""Monitors of the process itself: its event loop, its interpreter and its memory."""
