"""The text of files: decoding, pages of lines, and edits."""
