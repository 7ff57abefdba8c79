"""Other people's formats, read into traces."""
