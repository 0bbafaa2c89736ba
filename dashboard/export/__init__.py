"""What leaves the dashboard: recorded calls as a script."""
