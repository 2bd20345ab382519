"""A server of the Model Context Protocol: an agent's client runs and steers workflows by tools.

``handrail mcp`` speaks over stdio. What a tool does, a command of handrail does, in a process of
its own: a run goes on when the client has gone, what a workflow prints reaches nobody's protocol,
and who may steer a run is decided where it always is.
"""
