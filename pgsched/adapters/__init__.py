"""What lets pgsched work inside other libraries; nothing here imports them."""
