"""The metrics that studies compare: SelfReflect, its ablations, its competitors, and a control."""
