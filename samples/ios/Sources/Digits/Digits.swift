import CDigits

/// A failure in the runtime: `code` is its class, such as "OutOfMemory".
public struct IngotError: Error, CustomStringConvertible {
  public let code: String
  public let message: String

  public var description: String { "\(code): \(message)" }
}

/// The network that reads handwritten digits. One call at a time.
public final class Digits {
  public static let pixels = 64
  public static let classes = 10

  private let memory: UnsafeMutableRawPointer
  private let session: OpaquePointer

  /// All memory that calls ever use is taken here: `bytes`, of which each image of a call needs 5120.
  public init(bytes: Int = 1 << 18) throws {
    let memory = UnsafeMutableRawPointer.allocate(byteCount: bytes, alignment: 64)
    var session: OpaquePointer?
    do {
      try check(digits_create(memory, bytes, &session))
    } catch {
      memory.deallocate()
      throw error
    }
    self.memory = memory
    self.session = session!
  }

  deinit {
    memory.deallocate()
  }

  /// Ten scores for each image, the greatest is the answer. Images are 8 x 8 pixels from 0 (white)
  /// to 16 (black), one behind the other. The network reads and writes the arrays where they are.
  public func scores(of images: [Float]) throws -> [Float] {
    precondition(images.count % Digits.pixels == 0, "images are of \(Digits.pixels) pixels each")
    let count = images.count / Digits.pixels
    var scores = [Float](repeating: 0, count: count * Digits.classes)
    try check(digits_main(session, images, Int64(count), &scores))
    return scores
  }
}

private func check(_ status: ingot_status_t?) throws {
  guard let status = status else { return }
  defer { ingot_status_free(status) }
  throw IngotError(
    code: String(cString: ingot_status_code_name(ingot_status_code(status))),
    message: String(cString: ingot_status_message(status)))
}
