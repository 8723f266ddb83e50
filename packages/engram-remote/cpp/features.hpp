// What this build does on this host, by name.
#pragma once

#include <string_view>

#include "status.hpp"

namespace engram {

// Whether the kernel lets this process make an io_uring.
Outcome io_uring_available();

// As engram_feature.
Outcome feature(std::string_view name);

}  // namespace engram
