"""Stoker trains networks at the speed the hardware allows, and says what they wait for when they don't.

The front door for notebooks and programs is `stoker.api`.
"""
