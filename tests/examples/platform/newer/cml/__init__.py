"""This module is the platform's library under its newer name. It has a folder of its own, so that a test can choose between the two
names."""
