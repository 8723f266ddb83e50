// What this build does on this host, by name.
#pragma once

#include <string_view>

#include "status.hpp"

namespace engram {

// As engram_feature.
Outcome feature(std::string_view name);

}  // namespace engram
