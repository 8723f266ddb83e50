// The RDMA backend's connection: an RC queue pair for the data, and the control socket, whose end is the peer's end.
//
// Sleeping: `descriptor()` is an epoll set over both completion channels and the control socket, so one descriptor stands
// for everything that can happen.  Looking: `poll` reads the completion queue in memory and makes no system call.
//
// The receiving side owns the completions that came, the reader and the events; the sending side is rdma_sender.hpp.
#pragma once

#ifdef OFL_VERBS

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backend.hpp"
#include "link.hpp"
#include "rdma_queue_pair.hpp"
#include "rdma_segments.hpp"
#include "rdma_sender.hpp"
#include "rdma_status.hpp"
#include "socket.hpp"

namespace ofl {

class RdmaChannel final : public Channel {
 public:
  // The queue pair is connected.
  static Outcome create(std::unique_ptr<QueuePair> queue_pair, UniqueFd control, Role role, const RdmaTerms& terms,
                        std::unique_ptr<Channel>& channel);
  // A client's waits a while for the peer to acknowledge what was sent.  A server's does not: its loop serves others.
  ~RdmaChannel() override;

  static Capabilities rdma_capabilities() noexcept;

  Capabilities capabilities() const noexcept override { return rdma_capabilities(); }
  std::string describe() const override;
  int descriptor() const noexcept override { return events_.get(); }
  int hangup_descriptor() const noexcept override { return control_.get(); }
  bool arm(Arm what = Arm::all) noexcept override;
  Registrar* registrar() noexcept override { return &queue_pair_->device(); }
  void retract(const std::byte* memory) noexcept override { reader_.retract(memory); }
  Progress send(Outgoing& frame) noexcept override { return sender_.send(frame); }
  Progress place(const wire::PlacementRecord& where, Outgoing& frame) noexcept override {
    return sender_.place(where, frame);
  }
  void reap() noexcept override { sender_.reap(); }
  Progress receive(Inbox& inbox, std::size_t budget) noexcept override;
  Progress poll(Inbox& inbox, std::size_t budget) noexcept override;
  Progress take_credits() noexcept override;
  bool readable_now() noexcept override;
  bool mid_frame() const noexcept override { return reader_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept override { return bytes_; }
  void shut_down() noexcept override;
  void end_sending() noexcept override;
  const char* fault() const noexcept override { return fault_.text(); }

 private:
  RdmaChannel(std::unique_ptr<QueuePair> queue_pair, UniqueFd control, Role role, const RdmaTerms& terms);
  Outcome open_events();

  bool fetch() noexcept;  // true: more may be there
  bool fill() noexcept;   // false: there is nothing to take
  void fetch_all() noexcept;
  bool unread() const noexcept { return came_at_ < came_end_ || verdict_ != nullptr; }
  const char* judge(const ibv_wc& done) noexcept;
  bool take(const ibv_wc& done, Inbox& inbox) noexcept;
  const char* take_segment(const ibv_wc& done, Inbox& inbox) noexcept;
  const char* take_placement(const ibv_wc& done, Inbox& inbox) noexcept;
  bool break_off(ibv_wc_status status) noexcept;
  void repost() noexcept;
  void take_events() noexcept;
  Progress look_at_control() noexcept;

  std::unique_ptr<QueuePair> queue_pair_;
  const UniqueFd control_;
  const RdmaTerms terms_;
  const bool lingers_;
  RdmaFault fault_;
  RdmaSender sender_;
  UniqueFd events_;

  SegmentReader reader_;
  std::array<ibv_wc, kReceives + 1> came_;  // completions of receives that nobody has taken; the fence has one of its own
  std::size_t came_at_ = 0;
  std::size_t came_end_ = 0;
  const char* verdict_ = nullptr;  // what came after those broke this rule
  bool broke_ = false;             // one of those says that the wire broke
  std::array<std::uint32_t, kReceives> owing_{};  // receives that were read and are not posted again yet
  std::size_t owed_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t arrived_ = 0;  // segments and placements
  bool heard_ = false;  // a segment has come
  bool armed_ = false;  // the next receive makes an event

  std::atomic<bool> ending_{false};
  std::atomic<bool> down_{false};
  std::mutex down_mutex_;
};

}  // namespace ofl

#endif
