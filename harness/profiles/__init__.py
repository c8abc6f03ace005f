"""Profiles: what a model is told, offered and set to, kept as data."""

from .profile import GeneralPurpose, Profile
from .registry import ProfileRegistry, profile_for

__all__ = ["GeneralPurpose", "Profile", "ProfileRegistry", "profile_for"]
