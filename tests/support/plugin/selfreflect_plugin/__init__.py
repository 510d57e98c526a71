"""What a package of somebody else adds to selfreflect."""
