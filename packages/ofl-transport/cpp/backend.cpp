#include "backend.hpp"

namespace ofl {

Wait wait_for(Channel& channel, short events, Nanoseconds deadline) noexcept {
  pollfd entry{channel.descriptor(), events, 0};
  const timespec left = remaining(deadline, kSlice);
  const int ready = ::ppoll(&entry, 1, &left, nullptr);
  if (ready > 0) return Wait::ready;
  if (ready < 0) return Wait::interrupted;
  return now_ns() >= deadline ? Wait::deadline : Wait::again;
}

}  // namespace ofl
