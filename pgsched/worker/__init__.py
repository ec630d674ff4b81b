"""The worker process: claims runs, makes attempts, settles outcomes, and is supervised and watched."""
