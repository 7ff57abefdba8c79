#include "capture/recovery.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "capture/json.h"
#include "capture/segment_reader.h"
#include "trace/chunk_walk.h"
#include "trace/descriptor.h"
#include "trace/format_error.h"
#include "trace/replacement_sink.h"
#include "trace/sink.h"
#include "trace/writer.h"

namespace gpumemtrace::capture {
namespace {

constexpr int kLockTries = 100;  // so many times 20 ms for another reader to finish
constexpr long kLockPauseNs = 20'000'000;

// Processes are kept apart by the lock of the segment, threads of one process only by this. Made
// anew in place after a fork, never destroyed.
union MutexPlace {
  constexpr MutexPlace() : mutex() {}
  ~MutexPlace() {}  // NOLINT(modernize-use-equals-default): it would be deleted
  std::mutex mutex;
};
constinit MutexPlace g_one_at_a_time;

Recovery with(RecoveryOutcome outcome, std::string why) {
  Recovery result;
  result.outcome = outcome;
  result.why = std::move(why);
  return result;
}

std::string message_of(int error_number) { return std::generic_category().message(error_number); }

// Empty, or why this file is none that we may take for a segment of our own.
std::string why_not_ours(const struct stat& status) {
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1) return "it is not a plain file";
  if (status.st_uid != ::geteuid()) {
    return "it belongs to user " + std::to_string(status.st_uid) +
           ", who has to be the first to open the trace";
  }
  if ((status.st_mode & 077) != 0) return "others may write to it";
  return {};
}

// The writer holds the lock from beginning to end, another reader for a moment. 0, or the process
// that holds it (-1 when it can't be named from here).
pid_t lock_or_holder(int descriptor) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor, F_SETLK, &lock) == 0) return 0;
  if (::fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0) {
    return lock.l_pid;
  }
  return -1;
}

// With the lock: the process has ended, or become another program by exec. A process that lives and
// has the segment mapped has lost its lock, by closing descriptors that it did not open.
bool writer_lives_unlocked(const ProcessIdentity& writer, const struct stat& segment) {
  return liveness_of(writer) == Liveness::kLives &&
         has_mapped(writer.pid, segment.st_dev, segment.st_ino);
}

// The trace as it stands in the file.
struct FileState {
  WrittenBefore written;
  std::uint64_t trace_id = 0;
  bool is_closed = false;
  bool is_sound = true;  // but for its end
};

FileState state_of(const Source& source) {
  FileState state;
  ChunkWalk walk = walk_chunks(source);
  bool has_end_problem = false;
  for (const Problem& problem : walk.problems) {
    if (problem.kind == ProblemKind::kNotClosed || problem.kind == ProblemKind::kTruncated) {
      has_end_problem = true;
    } else {
      state.is_sound = false;
    }
  }
  if (walk.chunks.empty()) return state;
  const ChunkInfo last = walk.chunks.back();
  state.is_closed = last.is(ChunkType::kFooter) && !has_end_problem;
  // A footer without its trailer: we write another in its place.
  if (last.is(ChunkType::kFooter)) walk.chunks.pop_back();
  if (walk.chunks.empty()) return state;
  const ChunkHeader header = read_header(source, walk.chunks.back().offset);
  const ChunkInfo& kept = walk.chunks.back();
  state.trace_id = header.trace_id;
  state.written.next_chunk_number = header.chunk_number + 1;
  state.written.events = kept.first_sequence + (kept.is(ChunkType::kEvents) ? kept.count : 0);
  state.written.bytes = kept.end();
  state.written.chunks = std::move(walk.chunks);
  return state;
}

// What is to stand behind `state.written` in the file.
Recovery make_tail(FileState state, const SegmentHeader& header, std::uint64_t first_sequence,
                   const LeftBehind& left) {
  Recovery result;
  const std::uint64_t in_file = state.written.events;
  // Fewer events in the file than the writer had written: somebody cut it.
  const bool has_hole = in_file < first_sequence;
  const std::size_t known = static_cast<std::size_t>(
      std::min<std::uint64_t>(has_hole ? 0 : in_file - first_sequence, left.events.size()));
  if (has_hole) state.written.events = first_sequence;
  result.offset = state.written.bytes;
  result.events = left.events.size() - known;

  Writer writer(std::make_unique<BufferSink>(result.tail),
                {.time_resolution_ns = header.time_resolution_ns, .trace_id = state.trace_id},
                state.written);
  if (!left.names_json.empty()) writer.write_names(left.names_json.data(), left.names_json.size());
  writer.append(left.events.data() + known, left.events.size() - known);
  if (has_hole || !state.is_sound) {
    writer.flush();  // an index tells of a file without holes only
  } else {
    const std::string footer =
        JsonObject()
            .add("reason", std::string_view("recovered"))
            .add_raw("recovered", JsonObject()
                                      .add("events", result.events)
                                      .add("names_left_out", left.names_left_out)
                                      .text())
            .text();
    writer.close(footer.data(), footer.size());
  }
  if (writer.error_number() != 0) throw std::bad_alloc();
  return result;
}

// What the recorder said of the file that `source` is, or is a copy of; nullptr: of a copy that can't
// be told, since the file has been replaced by smaller ones. An inode alone doesn't tell: a copy may
// have got that of the file that was replaced.
const FileProgress* file_of(const FileSource& source, const FileState& state,
                            const Progress& progress) {
  struct stat status {};
  if (::fstat(source.descriptor(), &status) != 0) {
    throw std::system_error(errno, std::generic_category());
  }
  const auto first = [&](auto is_it) {
    const auto* const found =
        std::find_if(std::begin(progress.files), std::end(progress.files), is_it);
    return found != std::end(progress.files) ? found : nullptr;
  };
  const auto ends_there = [&](const FileProgress& file) {
    return state.written.events == file.first_sequence && state.written.bytes == file.bytes;
  };
  const bool was_replaced = progress.replacements != 0 || progress.files[1].inode != 0;
  const FileProgress* file =
      first([&](const FileProgress& one) { return is_file(one, status) && ends_there(one); });
  if (file == nullptr && was_replaced) file = first(ends_there);
  // Cut, or with a chunk that was not entered any more.
  if (file == nullptr) file = first([&](const FileProgress& one) { return is_file(one, status); });
  if (file == nullptr && !was_replaced) file = &progress.files[0];
  return file;
}

std::string is_a_copy_of(const SegmentHeader& header) {
  return "this is a copy; the file that was recorded to is " + std::string(header.file_path);
}

// Empty, or why not. Afterwards the file holds all, or what it held before.
std::string write_tail(const std::string& path, const SegmentHeader& header,
                       const FileProgress& place, const Recovery& made) {
  const OwnedDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return message_of(errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return message_of(errno);
  if (!S_ISREG(status.st_mode) || !is_file(place, status)) {
    return is_a_copy_of(header);
  }
  const auto end = static_cast<off_t>(made.offset);
  if (::ftruncate(file.get(), end) != 0) return message_of(errno);
  for (std::size_t done = 0; done < made.tail.size();) {
    const ssize_t written = ::pwrite(file.get(), made.tail.data() + done, made.tail.size() - done,
                                     end + static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : EIO;
      if (::ftruncate(file.get(), end) != 0) return message_of(errno);
      return message_of(error);
    }
    done += static_cast<std::size_t>(written);
  }
  return {};
}

// Under the lock.
Recovery recover_locked(const std::string& path, const std::string& segment_path, int segment,
                        const SegmentHeader& header) {
  const FileSource source(path);
  FileState state = state_of(source);
  if (state.is_closed) {  // the writer's last act was to close it, or another reader's
    ::unlink(segment_path.c_str());
    return {};
  }
  if (state.trace_id != header.trace_id) {
    return with(RecoveryOutcome::kLeftAlone, "it belongs to another trace");
  }
  const Progress progress = read_progress(segment);
  const FileProgress* const file = file_of(source, state, progress);
  if (file == nullptr) {
    return with(RecoveryOutcome::kLeftAlone,
                is_a_copy_of(header) + ", which a smaller file has replaced since");
  }
  const bool is_sound = state.is_sound;
  Recovery result = make_tail(std::move(state), header, file->first_sequence,
                              read_segment(segment, header, progress));
  result.why = is_sound ? write_tail(path, header, *file, result) : "the file is damaged";
  if (!result.why.empty()) {
    result.outcome = RecoveryOutcome::kInMemory;
    return result;
  }
  remove_unfinished_replacement(path);
  ::unlink(segment_path.c_str());
  result.outcome = RecoveryOutcome::kInFile;
  result.tail.clear();
  return result;
}

Recovery recover_found(const std::string& path, const std::string& segment_path, int segment) {
  struct stat status {};
  if (::fstat(segment, &status) != 0) {
    return with(RecoveryOutcome::kLeftAlone, message_of(errno));
  }
  if (std::string why = why_not_ours(status); !why.empty()) {
    return with(RecoveryOutcome::kLeftAlone, std::move(why));
  }
  if (is_retired(segment)) {
    ::unlink(segment_path.c_str());
    return {};
  }
  const SegmentHeader header =
      read_segment_header(segment, static_cast<std::uint64_t>(status.st_size));
  for (int attempt = 0;; ++attempt) {
    const pid_t holder = lock_or_holder(segment);
    if (holder == 0) break;
    if (holder == header.writer.pid || attempt == kLockTries) {
      return with(RecoveryOutcome::kWriterLives, {});
    }
    const timespec pause{0, kLockPauseNs};
    ::nanosleep(&pause, nullptr);
  }
  if (::fstat(segment, &status) != 0 || status.st_nlink == 0) return {};  // another was first
  if (writer_lives_unlocked(header.writer, status)) {
    return with(RecoveryOutcome::kWriterLives, {});
  }
  return recover_locked(path, segment_path, segment, header);
}

bool is_own_segment(const std::string& path) {
  struct stat status {};
  const std::uint64_t own = own_segment_inode();
  return own != 0 && ::lstat(path.c_str(), &status) == 0 && status.st_ino == own;
}

}  // namespace

void forget_recovery_after_fork() noexcept { new (&g_one_at_a_time.mutex) std::mutex; }

Recovery recover(const std::string& path, const std::string& segment_name,
                 const std::string& folder) {
  if (!is_segment_name(segment_name)) {
    return with(RecoveryOutcome::kLeftAlone, "its name is none that gpumemtrace gives");
  }
  const std::lock_guard guard(g_one_at_a_time.mutex);
  const std::string segment_path = folder + '/' + segment_name;
  if (is_own_segment(segment_path)) return with(RecoveryOutcome::kWriterLives, {});
  const OwnedDescriptor segment(
      ::open(segment_path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!segment.is_open()) {
    return errno == ENOENT ? Recovery{} : with(RecoveryOutcome::kLeftAlone, message_of(errno));
  }
  try {
    return recover_found(path, segment_path, segment.get());
  } catch (const SegmentError& error) {
    return with(RecoveryOutcome::kLeftAlone, error.what());
  }
}

}  // namespace gpumemtrace::capture
