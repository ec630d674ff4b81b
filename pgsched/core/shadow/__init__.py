"""Compare the slots of jobs with the log of another scheduler: read its log, find the job of each start, pair them."""
