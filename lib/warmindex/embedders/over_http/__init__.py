"""Texts to vectors through embedding servers: what TEI and the OpenAI form share.

    embed       texts in, vectors out
      call      one list of texts: batches, retries, isolation, an end for each text
        batches     how texts are cut into requests
        replicas    which replica may be asked, and when
        backend     one request
          http        over httpx, whose exceptions it alone knows
          answers     what a status and its words mean
          decode      from an answer's bytes to vectors
        decisions   what to do about an answer that is no vectors
        retry       when to ask again, and when to stop
        ledger      what has become of each text
    urls        base URLs, and what is built from them

Whatever decides is pure; `call`, `replicas`, `backend` and `http` wait and talk.
"""
