"""APScheduler: the clean-up and the folder sync at the times of a crontab line."""
