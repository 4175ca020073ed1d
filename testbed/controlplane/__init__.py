"""The control-plane bed: etcd, API server, controller manager, scheduler, and KWOK's fake nodes."""
