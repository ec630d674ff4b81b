"""The job stores of APScheduler 3: read as data, without APScheduler and without what their pickles name."""
