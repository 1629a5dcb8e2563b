"""Which search settings should I ship?"""
