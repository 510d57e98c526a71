"""The metrics that studies compare: SelfReflect, its ablations, its competitors, and controls.

``infos`` lists them; :func:`selfreflect.validate.catalogue.families` makes the families that compute them,
one file each.
"""
