"""Tests of the studio's data."""
