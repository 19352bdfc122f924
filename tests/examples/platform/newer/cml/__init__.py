"""Replaces the platform's library under its newer name. It is in a separate folder, so that a test can choose between the two names."""
