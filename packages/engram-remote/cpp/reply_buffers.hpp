// Registered memory that replies are gathered into and lent from.  A buffer is idle, being filled, or sent; a sent one is
// idle again when the transport reads it no more, which is asked for and never awaited by whoever receives.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "clock.hpp"
#include "ofl_library.hpp"
#include "status.hpp"

namespace engram {

struct FreeBuffer {
  void operator()(ofl_buffer* buffer) const noexcept { ofl().buffer_free(buffer); }
};

struct ReplyBuffer {
  std::unique_ptr<ofl_buffer, FreeBuffer> buffer;
  std::byte* base = nullptr;
};

class ReplyBuffers {
 public:
  // `count` buffers of `bytes`, registered with the server's listeners.
  Outcome create(ofl_server* server, std::size_t count, std::size_t bytes);

  // An idle buffer, the one that was sent first if there are several; nullptr where there is none.
  ReplyBuffer* try_take();
  // The same, waiting for one until `deadline`.
  ReplyBuffer* take(Nanoseconds deadline);
  // Back, unsent.
  void put_back(ReplyBuffer* buffer);
  // Handed to the transport, which may still read it.
  void sent(ReplyBuffer* buffer);
  // Whether all that was sent has been read by `deadline`.
  bool settle(Nanoseconds deadline);

 private:
  bool idle(const ReplyBuffer& buffer, Nanoseconds deadline) const;
  ReplyBuffer* try_take_locked();

  ofl_server* server_ = nullptr;
  std::vector<std::unique_ptr<ReplyBuffer>> all_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ReplyBuffer*> idle_;  // the last is taken first: its lines are still in a cache
  std::deque<ReplyBuffer*> sent_;   // in the order of sending
};

}  // namespace engram
