"""Agents, and the backends that carry them out, one backend a file or package.

``launch.AgentLaunch`` carries out one launch: it chooses the session and calls the backend.
"""
