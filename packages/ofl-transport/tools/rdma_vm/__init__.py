"""A virtual machine with an RDMA device of software (soft-RoCE), for testing real RDMA without such hardware.

The machine's own root file system is booted under Debian's kernel in QEMU, emulated without KVM.  `kit` gets together
what that needs, `vm` boots it and runs commands in it, `suite` runs the RDMA tests inside.  Standard library only.
"""
