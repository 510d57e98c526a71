"""The metrics that studies compare: SelfReflect, its ablations, its competitors, and controls that any metric
must beat."""
