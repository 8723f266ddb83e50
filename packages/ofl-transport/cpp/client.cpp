// A client's calls: submitted, waited for, cancelled, settled.

#include "client.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <sys/eventfd.h>

#include "process.hpp"

namespace ofl {

using wire::FrameHeader;
using wire::FrameType;

namespace {

constexpr unsigned kLooksPerClock = 16;  // a look at a ring costs less than one at the clock
constexpr unsigned kReadsPerClock = 4;   // a socket, while there is time to spin

bool one_cpu() noexcept { return usable_cpus() < 2; }

Registrar& registrar_of(Channel& channel) noexcept {
  Registrar* const own = channel.registrar();
  return own != nullptr ? *own : host_registrar();
}

}  // namespace

Client::Client(std::unique_ptr<Channel> channel, const ClientOptions& options, const Agreement& agreement)
    : channel_(std::move(channel)),
      agreement_(agreement),
      wire_(channel_->describe()),
      heartbeat_(options.heartbeat),
      loss_(options.loss),
      spin_(one_cpu() ? 0 : options.spin),  // on one CPU the peer cannot run while we look
      one_sided_(channel_->capabilities().one_sided),
      registrar_(registrar_of(*channel_)),
      fork_generation_(fork_generation()),
      arena_(new std::byte[wire::kSlots * kSlotStride]),
      last_sent_(now_ns()),
      last_heard_(now_ns()),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_.valid()) throw std::bad_alloc();
  keeper_ = start_quiet_thread([this] { keep(); });
}

Client::~Client() {
  close();
  for (Call& call : calls_)
    if (call.memory.into) call.memory.into->release(call.claim);
}

bool Client::foreign() const noexcept { return fork_generation_ != fork_generation(); }

Outcome Client::register_memory(Memory& memory) {
  const Gate::Pass pass(gate_);
  if (!pass) return failure(OFL_CLOSED, "the connection was closed by this side");
  return memory.register_with(registrar_);
}

std::byte* Client::memory_of(Call& call) noexcept {
  if (call.memory.into) return call.memory.into->landing().data() + call.memory.offset;
  return call.large.memory ? call.large.memory.get() : arena_.get() + wire::slot_of(call.sequence).index * kSlotStride;
}

Client::Call* Client::find(std::uint64_t sequence) noexcept {
  Call& call = calls_[wire::slot_of(sequence).index];
  return call.state != CallState::free && call.sequence == sequence ? &call : nullptr;
}

Status Client::check_memory(const CallMemory& memory) const noexcept {
  for (const Memory* used : {memory.into.get(), memory.lent.get()})
    if (used != nullptr && used->registration(registrar_) == nullptr) return OFL_INVALID;
  if (!memory.into) return OFL_OK;
  const std::size_t room = memory.into->bytes().size();
  return memory.offset > room || memory.bytes > room - memory.offset ? OFL_INVALID : OFL_OK;
}

// What Memory::claim cannot see: the same bytes, known to the library as several buffers.
Status Client::overlap(const CallMemory& memory) const noexcept {
  if (!memory.into || memory.bytes == 0 || placed_calls_ == 0) return OFL_OK;
  const std::byte* first = memory.into->landing().data() + memory.offset;
  for (const Call& call : calls_) {
    if (call.state == CallState::free || !call.memory.into || call.memory.into == memory.into) continue;
    const std::byte* other = call.memory.into->landing().data() + call.memory.offset;
    if (first >= other + call.memory.bytes || other >= first + memory.bytes) continue;
    return call.state == CallState::quarantined ? OFL_QUARANTINED : OFL_OVERLAP;
  }
  return OFL_OK;
}

Status Client::open_call(const CallMemory& memory, std::uint64_t& sequence) {
  const std::scoped_lock lock(receive_mutex_);
  if (open_calls_ >= agreement_.calls_max) settle_lent();
  if (open_calls_ >= agreement_.calls_max) return OFL_LIMIT;
  Status status = overlap(memory);
  if (status != OFL_OK) return status;
  if (const wire::Slot slot = wire::slot_of(next_sequence_); open_calls_ == 0 && slot.index >= kNearSlots)
    next_sequence_ = wire::sequence_of({.index = 0, .generation = slot.generation + 1});
  while (calls_[wire::slot_of(next_sequence_).index].state != CallState::free) ++next_sequence_;
  Call& call = calls_[wire::slot_of(next_sequence_).index];
  if (memory.into) status = memory.into->claim(call.claim, lost_, memory.offset, memory.bytes);
  if (status != OFL_OK) return status;
  sequence = next_sequence_++;
  call.sequence = sequence;
  call.state = CallState::open;
  call.body_bytes = 0;
  if (memory.into || memory.lent) call.memory = memory;
  if (memory.into) ++placed_calls_;
  ++open_calls_;
  return OFL_OK;
}

// The memory is the caller's again.  A body may be on its way there although the reply is whole: on a one-sided wire a
// peer that keeps no rule begins a plain reply, and completes a placement.
void Client::end_call(Call& call) noexcept {
  channel_->retract(memory_of(call));
  call.large = {};
  if (call.memory.into) {
    call.memory.into->release(call.claim);
    --placed_calls_;
  }
  if (call.memory.into || call.memory.lent) call.memory = {};
  call.state = CallState::free;
  --open_calls_;
}

// A request that was cancelled while its memory was read is settled by its own completion, and nobody may have asked since.
void Client::settle_lent() noexcept {
  channel_->reap();
  for (Call& call : calls_)
    if (call.state == CallState::quarantined && !call.memory.into && call.memory.lent->idle()) end_call(call);
}

wire::PlacementRecord Client::record_of(const CallMemory& memory) const noexcept {
  // A range may be larger than any reply, and than the record's 32 bits.
  const std::size_t bytes = std::min<std::size_t>(memory.bytes, agreement_.frame_bytes_max);
  wire::PlacementRecord record{0, 0, static_cast<std::uint32_t>(bytes)};
  if (!one_sided_) return record;
  record.address = reinterpret_cast<std::uintptr_t>(memory.into->landing().data() + memory.offset);
  record.key = memory.into->registration(registrar_)->remote_key();
  return record;
}

Status Client::submit(std::span<const Part> parts, const CallMemory& memory, Nanoseconds deadline,
                      std::uint64_t& sequence) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  if (!alive()) return lost_status();
  std::size_t bytes = 0;
  for (const Part& part : parts) bytes += part.bytes;
  if (bytes > agreement_.frame_bytes_max) return OFL_TOO_LARGE;
  if (parts.size() > kPartsMax) return OFL_INVALID;
  Status status = check_memory(memory);
  if (status != OFL_OK) return status;
  const std::scoped_lock sending(send_mutex_);
  status = begin_or_resume(memory, sequence);
  if (status != OFL_OK) return status;
  if (memory.into) {
    const wire::PlacementRecord record = record_of(memory);
    std::array<Part, kPartsMax + 1> all;
    all[0] = {&record, sizeof record};
    std::copy(parts.begin(), parts.end(), all.begin() + 1);
    Outgoing frame(wire::make_header(FrameType::request, sequence, bytes + sizeof record, wire::kPlaced),
                   {all.data(), parts.size() + 1}, memory.lent.get());
    status = send_request(frame, deadline);
  } else {
    Outgoing frame(wire::make_header(FrameType::request, sequence, bytes), parts, memory.lent.get());
    status = send_request(frame, deadline);
  }
  if (status == OFL_INTERRUPTED && stopped_sequence_ != 0) return status;
  if (status != OFL_OK) {  // nothing of it was sent, or the connection is lost
    const std::scoped_lock lock(receive_mutex_);
    if (Call* call = find(sequence)) end_call(*call);
  }
  return status;
}

// A signal in the middle of a frame: its handlers run in the caller, who comes back with the same request.
Status Client::begin_or_resume(const CallMemory& memory, std::uint64_t& sequence) {
  if (stopped_sequence_ == 0) return open_call(memory, sequence);
  if (stopped_sequence_ == sequence) return OFL_OK;
  give_up("a request was stopped half way by a signal, and another one submitted");
  return lost_status();
}

bool Client::frame_stopped() {
  const std::scoped_lock lock(send_mutex_);
  return stopped_sequence_ != 0;
}

Status Client::send_request(Outgoing& frame, Nanoseconds deadline) {
  frame.advance(std::exchange(stopped_sent_, 0));
  stopped_sequence_ = 0;
  for (;;) {
    Progress progress = frame.sent() > 0 ? Progress::done : outbox_.flush(*channel_);
    if (progress == Progress::done) progress = channel_->send(frame);
    if (progress == Progress::done) break;
    if (progress != Progress::blocked) {
      give_up_sending();
      return lost_status();
    }
    const Status status = wait_sendable(deadline);
    if (status == OFL_OK) continue;
    if (status == OFL_INTERRUPTED && frame.sent() > 0) {
      stopped_sequence_ = frame.header().sequence;
      stopped_sent_ = frame.sent();
    } else if (frame.sent() > 0) {
      give_up("a request was cut off by its deadline");
    }
    return status;
  }
  last_sent_.store(coarse_now_ns(), std::memory_order_relaxed);
  return OFL_OK;
}

// Waits for room, and keeps reading meanwhile: a peer that cannot send replies would not read requests either.
Status Client::wait_sendable(Nanoseconds deadline) {
  if (!alive()) return lost_status();
  const short room = channel_->room_events();
  {
    const std::scoped_lock lock(receive_mutex_);
    if (!channel_->arm() && !waiting_) return receive_now(false) ? OFL_OK : lost_status();
  }
  const Wait wait = wait_for(*channel_, static_cast<short>(room | POLLIN), deadline);
  // A signal may have come just before the wait, so whoever called looks for one after every slice.
  if (wait == Wait::interrupted || wait == Wait::again) return OFL_INTERRUPTED;
  if (wait == Wait::deadline) return OFL_DEADLINE;
  const std::scoped_lock lock(receive_mutex_);
  if (!waiting_ && !receive_now(true)) return lost_status();
  return OFL_OK;
}

// Receives until `done`, without sleeping for `spin`, then once more after sleeping for what comes.  OFL_INTERRUPTED: not
// yet; whoever calls repeats it, so that signal handlers run in between.
template <typename Done>
Status Client::look(std::unique_lock<std::mutex>& lock, Nanoseconds deadline, Done done) noexcept {
  const unsigned reads = spin_ > 0 ? kReadsPerClock : 0;  // a socket that is slept on says itself what is there
  const unsigned looks = channel_->cheap_to_poll() ? kLooksPerClock : reads;
  Nanoseconds spin_ends = 0;
  Nanoseconds turn_ends = 0;
  Nanoseconds now = 0;
  do {
    for (unsigned i = 0; i < looks; ++i) {
      if (done()) return OFL_OK;
      channel_->watch();
      if (!receive_now(false)) return done() ? OFL_OK : lost_status();
    }
    if (done()) return OFL_OK;
    now = now_ns();
    if (spin_ends == 0) spin_ends = std::min(deadline, now + spin_);
    if (now < turn_ends) continue;
    if (turn_ends != 0) {  // the keeper's turn
      lock.unlock();
      lock.lock();
    }
    turn_ends = now + kSpinTurn;
  } while (now < spin_ends);
  if (now < deadline && channel_->arm()) {
    // Below a low-water mark nobody wakes us, and the keeper reads nothing while we wait.
    const Nanoseconds wakes = channel_->low_water() > 1 ? std::min(deadline, now + heartbeat_ / 2) : deadline;
    waiting_ = true;
    lock.unlock();
    wait_for(*channel_, POLLIN, wakes);
    lock.lock();
    waiting_ = false;
  }
  // A reply that is there counts even if the deadline passed, and a flood of other frames does not hold us here.
  const bool lives = receive_now(true);
  if (done()) return OFL_OK;
  if (!lives) return lost_status();
  return now_ns() >= deadline ? OFL_DEADLINE : OFL_INTERRUPTED;
}

void Client::hand_out(Call& call, std::span<const std::byte>& body) noexcept {
  const CallMemory& memory = call.memory;
  body = {memory_of(call), call.body_bytes};
  if (memory.into && memory.into->bounces()) {
    std::byte* user = memory.into->bytes().data() + memory.offset;
    std::memcpy(user, body.data(), body.size());
    body = {user, body.size()};
  }
  if (call.large.memory) taken_ = std::move(call.large);
  end_call(call);
}

Status Client::wait(std::uint64_t sequence, Nanoseconds deadline, std::span<const std::byte>& body) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  std::unique_lock lock(receive_mutex_);
  if (waiting_) return OFL_BUSY;
  Call* call = find(sequence);
  if (call == nullptr || call->state == CallState::quarantined) return OFL_UNKNOWN;
  const auto ended = [&] { return call->state != CallState::open || call->sequence != sequence; };
  const Status status = ended() ? OFL_OK : look(lock, deadline, ended);
  if (status != OFL_OK) return status;
  call = find(sequence);
  if (call == nullptr || call->state != CallState::done) return OFL_UNKNOWN;  // cancelled meanwhile
  hand_out(*call, body);
  return OFL_OK;
}

Status Client::cancel(std::uint64_t sequence) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_CLOSED;
  bool quarantined = false;
  if (frame_stopped()) give_up("a request was cut off half way by a signal");
  {
    const std::scoped_lock lock(receive_mutex_);
    Call* call = find(sequence);
    if (call == nullptr || call->state == CallState::quarantined) return OFL_UNKNOWN;
    const bool answered = call->state == CallState::done;
    const bool reachable = call->memory.into != nullptr || (call->memory.lent && !call->memory.lent->idle());
    quarantined = one_sided_ && !answered && reachable && alive();
    if (quarantined) {
      call->state = CallState::quarantined;
      if (call->memory.into) call->memory.into->quarantine(call->claim);
    } else {
      end_call(*call);
    }
    if (answered) return OFL_OK;
  }
  if (alive()) send_control(FrameType::cancel, sequence);
  return quarantined ? OFL_QUARANTINED : OFL_OK;
}

Status Client::settled(std::uint64_t sequence, Nanoseconds deadline) {
  const Gate::Pass pass(gate_);
  if (!pass) return OFL_OK;  // closing ended the connection first
  std::unique_lock lock(receive_mutex_);
  if (waiting_) return OFL_BUSY;
  Call* call = find(sequence);
  if (call == nullptr) return OFL_OK;
  if (call->state != CallState::quarantined) return OFL_INVALID;
  const auto over = [&] { return call->state != CallState::quarantined || call->sequence != sequence; };
  const bool lends = !call->memory.into;
  if (lends) settle_lent();
  Status status = alive() ? look(lock, deadline, over) : OFL_OK;
  // No completion of a send ends a look, so what came during it is found here.
  if (lends && status != OFL_OK) {
    settle_lent();
    if (over()) status = OFL_OK;
  }
  return status == OFL_LOST || status == OFL_CLOSED ? OFL_OK : status;
}

void Client::send_control(FrameType type, std::uint64_t sequence) {
  const std::scoped_lock lock(send_mutex_);
  try {
    outbox_.append(Outgoing(wire::make_header(type, sequence, 0), {}));
  } catch (const std::bad_alloc&) {  // the peer would hold on to a call whose slot is used again here
    give_up("there is no memory left to tell the peer of a cancel");
    return;
  }
  last_sent_.store(now_ns(), std::memory_order_relaxed);
  if (outbox_.flush(*channel_) == Progress::failed) give_up_sending();
}

}  // namespace ofl
