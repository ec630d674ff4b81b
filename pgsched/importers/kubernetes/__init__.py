"""CronJobs of Kubernetes, from their manifests."""
