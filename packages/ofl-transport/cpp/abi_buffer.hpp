// What an ofl_buffer is, for the parts of the C ABI that take one.
#pragma once

#include <memory>

#include "memory.hpp"

struct ofl_buffer {
  std::shared_ptr<ofl::Memory> memory;
};
