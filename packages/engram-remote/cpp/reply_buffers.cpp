#include "reply_buffers.hpp"

#include <algorithm>
#include <chrono>

namespace engram {

namespace {

// The longest time in one wait: what is waited for may come another way.
constexpr Nanoseconds kWaitSlice = 5 * kMillisecond;

}  // namespace

Outcome ReplyBuffers::create(ofl_server* server, std::size_t count, std::size_t bytes) {
  server_ = server;
  for (std::size_t i = 0; i < count; ++i) {
    char text[512] = "";
    ofl_buffer* made = nullptr;
    std::int32_t status = ofl().buffer_create(nullptr, bytes, 0, &made, text, sizeof text);
    if (status != OFL_OK)
      return failure(ENGRAM_SYSTEM, "a reply buffer of " + std::to_string(bytes) + " bytes cannot be had: " + text);
    all_.push_back(std::make_unique<ReplyBuffer>());
    all_.back()->buffer.reset(made);
    all_.back()->base = static_cast<std::byte*>(ofl().buffer_base(made));
    status = ofl().server_register(server, made, text, sizeof text);
    if (status != OFL_OK) return failure(ENGRAM_SYSTEM, std::string("a reply buffer cannot be registered: ") + text);
    idle_.push_back(all_.back().get());
  }
  return {};
}

bool ReplyBuffers::idle(const ReplyBuffer& buffer, Nanoseconds deadline) const {
  return ofl().server_idle(server_, buffer.buffer.get(), deadline) == OFL_OK;
}

ReplyBuffer* ReplyBuffers::try_take_locked() {
  // One that was sent and is idle again goes before one that was never used: it is warm.
  const auto found = std::find_if(sent_.begin(), sent_.end(), [this](ReplyBuffer* buffer) { return idle(*buffer, 0); });
  if (found != sent_.end()) {
    ReplyBuffer* const taken = *found;
    sent_.erase(found);
    return taken;
  }
  if (idle_.empty()) return nullptr;
  ReplyBuffer* const taken = idle_.back();
  idle_.pop_back();
  return taken;
}

ReplyBuffer* ReplyBuffers::try_take() {
  const std::scoped_lock lock(mutex_);
  return try_take_locked();
}

ReplyBuffer* ReplyBuffers::take(Nanoseconds deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (ReplyBuffer* const taken = try_take_locked()) return taken;
    const Nanoseconds now = now_ns();
    if (now >= deadline) return nullptr;
    const Nanoseconds until = std::min(deadline, now + kWaitSlice);
    if (sent_.empty()) {
      changed_.wait_for(lock, std::chrono::nanoseconds(until - now));
      continue;
    }
    const ReplyBuffer* const oldest = sent_.front();
    lock.unlock();
    static_cast<void>(idle(*oldest, until));
    lock.lock();
  }
}

void ReplyBuffers::put_back(ReplyBuffer* buffer) {
  {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(buffer);
  }
  changed_.notify_one();
}

void ReplyBuffers::sent(ReplyBuffer* buffer) {
  {
    const std::scoped_lock lock(mutex_);
    sent_.push_back(buffer);
  }
  changed_.notify_one();
}

bool ReplyBuffers::settle(Nanoseconds deadline) {
  for (;;) {
    std::vector<ReplyBuffer*> open;
    {
      const std::scoped_lock lock(mutex_);
      open.assign(sent_.begin(), sent_.end());
    }
    const bool all = std::all_of(open.begin(), open.end(), [&](ReplyBuffer* one) { return idle(*one, deadline); });
    if (all) return true;
    if (now_ns() >= deadline) return false;
  }
}

}  // namespace engram
