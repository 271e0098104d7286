"""Scheduled jobs: one run per slot among all workers of a store."""
