"""What stands behind the pages: caches, jobs, polling, seeds, links and the example runs."""
