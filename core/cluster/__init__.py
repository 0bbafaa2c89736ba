"""Runs on a Ray cluster ($ATTENTION_LAB_RAY): what goes there and comes back is a run's folder.

Ray ends the process of a driver that loses the head of the cluster, so the server is none: another process, the bridge,
submits the runs and brings back what they write. Only the bridge and the nodes import Ray, and neither imports PyTorch,
which the worker that a node starts does.
"""
