"""The platform's library by its newer name; a folder of its own, so that a test chooses which of the two there are."""
