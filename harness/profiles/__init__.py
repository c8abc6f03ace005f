"""Profiles: prompts, tools and settings that differ between models, as data."""

from .profile import GeneralPurpose, Profile
from .registry import ProfileRegistry, profile_for

__all__ = ["GeneralPurpose", "Profile", "ProfileRegistry", "profile_for"]
