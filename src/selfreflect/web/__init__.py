"""What the app and the endpoint share as HTTP servers: who may call, and what a client may send and hold."""
