"""State behind the pages: caches, jobs, polling, links and example runs."""
