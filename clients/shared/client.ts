/** Client of the HTTP service of retriever: `/search` and `/documents`. */

/** Offsets count Unicode characters, not UTF-16 units; `stop` is behind the last one. */
export type Span = [start: number, stop: number];

export interface Place {
  pages?: [string, string];
  headings?: string[];
  /** Numbers of the first and the last line, from 1. */
  lines?: [number, number];
  message?: string;
}

export interface Hit {
  rank: number;
  score: number;
  id: string;
  title: string | null;
  passage: string;
  start: number;
  stop: number;
  place?: Place;
  /** Words of the query in the passage; missing for similar documents. */
  marks?: Span[];
  metadata: Record<string, unknown>;
}

export interface SearchResult {
  hits: Hit[];
  /** Why there are no hits, and what to change. */
  no_hits?: string;
  /** How to search for words that the query leaves out. */
  note?: string;
  did_you_mean?: string;
  warnings: string[];
}

export interface StoredDocument {
  id: string;
  title: string | null;
  text: string;
  metadata: Record<string, unknown>;
}

/** A passage of a document, by a character offset inside it. */
export interface Like {
  id: string;
  start: number;
}

/** Either a query or a passage to find similar documents of. */
export interface SearchRequest {
  query?: string;
  like?: Like;
  /** A filter such as `year >= 2020`. */
  where?: string;
}

export interface ClientOptions {
  address: string;
  /** Name of an index of the service; empty for its first one. */
  index: string;
  /** Number of hits. */
  k: number;
  /** Bearer token; empty for a service without one. */
  token: string;
  /** The place where the user enters a token, for messages. */
  tokenPlace: string;
}

export interface HttpRequest {
  url: string;
  method: "GET" | "POST";
  headers: Record<string, string>;
  body?: string;
  signal: AbortSignal;
}

export interface HttpAnswer {
  status: number;
  text: string;
}

/** Sends a request; rejects if no answer arrives or the signal aborts. */
export type Transport = (request: HttpRequest) => Promise<HttpAnswer>;

export const DEFAULT_ADDRESS = "http://127.0.0.1:8765";
export const DEFAULT_K = 10;
/** The service answers within 30 seconds, or with status 504. */
const TIMEOUT_MILLISECONDS = 40_000;

/** An error with a sentence for the user; `status` is 0 if no answer arrived. */
export class ServiceError extends Error {
  override name = "ServiceError";

  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export async function sendByFetch({ url, ...request }: HttpRequest): Promise<HttpAnswer> {
  const answer = await fetch(url, request);
  return { status: answer.status, text: await answer.text() };
}

export class Client {
  constructor(
    private readonly options: ClientOptions,
    private readonly send: Transport = sendByFetch,
  ) {}

  /** Return the hits of a query, or documents like a passage, the best first. */
  async search(request: SearchRequest, signal?: AbortSignal): Promise<SearchResult> {
    const { query, like, where } = request;
    const { index, k } = this.options;
    const body = {
      ...(like ? { like } : { query, highlight: true }),
      ...(where ? { where } : {}),
      ...(index ? { index } : {}),
      k,
    };
    const { results, warnings } = await this.call("search", signal, body);
    if (!Array.isArray(results) || !Array.isArray(results[0]?.hits)) {
      throw this.notTheService("without hits");
    }
    return { ...results[0], warnings: warnings ?? [] };
  }

  /** Return a document; ServiceError with status 404 if the index lacks it. */
  async document(id: string, signal?: AbortSignal): Promise<StoredDocument> {
    const { index } = this.options;
    const parameters = new URLSearchParams({ id, ...(index ? { index } : {}) });
    return this.call(`documents?${parameters}`, signal);
  }

  /**
   * Return the passage of a document that holds a line of its file.
   *
   * The document is the first of `ids` that the index holds. Without the line in its text the
   * passage is its first.
   */
  async passageAt(ids: string[], line: string, signal?: AbortSignal): Promise<Like> {
    let failure: unknown = new ServiceError("This file is in none of the indexed folders.", 404);
    for (const id of ids) {
      try {
        const { text } = await this.document(id, signal);
        const position = line.trim() ? text.indexOf(line.trim()) : -1;
        return { id, start: position < 0 ? 0 : Array.from(text.slice(0, position)).length };
      } catch (error) {
        failure = error;
        if (!(error instanceof ServiceError && error.status === 404)) break;
      }
    }
    throw failure;
  }

  private async call(path: string, signal?: AbortSignal, body?: object): Promise<any> {
    const { token } = this.options;
    const controller = new AbortController();
    const cancel = () => controller.abort();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      cancel();
    }, TIMEOUT_MILLISECONDS);
    signal?.addEventListener("abort", cancel);
    if (signal?.aborted) cancel();
    try {
      const answer = await this.send({
        url: `${this.base()}/${path}`,
        method: body ? "POST" : "GET",
        headers: {
          ...(token ? { Authorization: `Bearer ${token}` } : {}),
          ...(body ? { "Content-Type": "application/json" } : {}),
        },
        ...(body ? { body: JSON.stringify(body) } : {}),
        signal: controller.signal,
      });
      return this.content(answer);
    } catch (error) {
      // A search that a later search replaces is no failure of the service.
      if (signal?.aborted || error instanceof ServiceError) throw error;
      throw new ServiceError(this.silence(isLate), 0);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Return the address without a final slash; ServiceError if it is none. */
  private base(): string {
    const { address } = this.options;
    let url: URL | null = null;
    try {
      url = new URL(address.trim());
    } catch {
      // Refused below, as another protocol is.
    }
    if (url === null || !["http:", "https:"].includes(url.protocol)) {
      const expected = `expected an address such as ${DEFAULT_ADDRESS}`;
      throw new ServiceError(`Address "${address}": ${expected}.`, 0);
    }
    return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
  }

  private silence(isLate: boolean): string {
    const { address } = this.options;
    if (isLate) return `The service at ${address} did not answer in time. Try again.`;
    return (
      `No service answers at ${address}. Start it with "retriever serve my.index", ` +
      "or change the address in the settings."
    );
  }

  private content({ status, text }: HttpAnswer): any {
    let content: any = null;
    try {
      content = JSON.parse(text);
    } catch {
      // Handled below: every answer of the service is JSON.
    }
    if (status === 401) {
      const { token, tokenPlace } = this.options;
      const reason = token ? "refuses this token" : "needs a token";
      throw new ServiceError(`The service ${reason}. Enter its token ${tokenPlace}.`, status);
    }
    if (status === 200 && content !== null && typeof content === "object") return content;
    if (typeof content?.message === "string") throw new ServiceError(content.message, status);
    throw this.notTheService(`with status ${status}`, status);
  }

  private notTheService(answer: string, status = 200): ServiceError {
    const reason = `${this.options.address} is no service of retriever: it answers ${answer}`;
    return new ServiceError(`${reason}. Change the address in the settings.`, status);
  }
}
