"""What concerns the process: caches, visitors and their limits, the log, health. A page imports none of it."""
