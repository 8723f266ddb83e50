# Cross-compiles for aarch64 Linux with Debian's compiler (g++-aarch64-linux-gnu); tests run under qemu-user.
#
#   cmake -S packages/ofl-transport -B BUILD --toolchain packages/ofl-transport/cmake/aarch64-linux-gnu.cmake
#
# Headers and libraries come from the target's own tree only.  Where the headers of libibverbs lie, which are the same on
# every architecture, is said apart from it (OFL_VERBS_INCLUDE): the build host's /usr/include is for another machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
