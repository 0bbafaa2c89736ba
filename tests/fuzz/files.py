"""The doors through which files come: archives, uploads, lessons, and what lies in the folders of runs and models."""

from __future__ import annotations
