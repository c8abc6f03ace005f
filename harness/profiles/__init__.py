"""Profiles: what a model is told, offered and set to, kept as data (peers C12)."""

from harness.profiles.profile import GeneralPurpose, Profile
from harness.profiles.registry import ProfileRegistry, profile_for

__all__ = ["GeneralPurpose", "Profile", "ProfileRegistry", "profile_for"]
